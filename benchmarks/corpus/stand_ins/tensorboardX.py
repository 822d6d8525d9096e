"""A writer of summaries that prints the numbers which it is given."""


class SummaryWriter:
    def __init__(self, folder=None): ...

    def add_text(self, name, text): ...

    def add_figure(self, name, figure, step): ...

    def add_scalar(self, name, value, step):
        if "SPS" not in name:
            print(name, value, step)

    def close(self): ...
