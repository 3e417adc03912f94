"""What would happen: the queue under other strategies, and the offers of several servers."""
