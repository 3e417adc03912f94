"""Plan the steps on each host from facts about it, without connections."""
