"""A writer of summaries that prints the numbers which it is given."""

from tensorboardX import SummaryWriter

__all__ = ["SummaryWriter"]
