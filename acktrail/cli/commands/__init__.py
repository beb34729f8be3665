"""One module for the commands of a subject; ``acktrail.cli.main.COMMANDS`` says which command is where."""
