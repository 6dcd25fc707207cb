"""What NCCL reports about a running job outside its log: the answers of RAS, and the files of the Inspector."""
