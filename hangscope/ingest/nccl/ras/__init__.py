"""What NCCL tells of a running job from outside its log: the answers of RAS, and the files of the Inspector."""
