"""From a reconciliation and the delivery history to the status of every queue, and the totals that pages read."""
