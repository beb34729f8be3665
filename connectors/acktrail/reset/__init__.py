"""Changes of start offsets that can be looked at before, verified after, and taken back.

Steps, one a function (`reset.steps`), that the command line and a DAG call alike; what goes from one to the next is
plain data (`reset.plain`). What is pure here: requests and scopes, strategies, impact, rules, the plan and its hash,
the verdict on what the state topic shows afterwards. Edges: `gather` asks the brokers, `journal` writes the tables.
"""
