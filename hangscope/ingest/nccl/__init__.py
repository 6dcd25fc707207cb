"""What NCCL and RCCL leave: debug logs, RAS, the Inspector."""
