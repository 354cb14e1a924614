"""What a task trains on: learner, replay memory, training set, plan of an epoch."""
