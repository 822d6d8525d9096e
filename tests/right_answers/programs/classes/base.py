class Base:
    scale = 2.0

    def run(self, x):
        return x * self.scale
