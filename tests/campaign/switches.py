"""Random nets with every switch on and off."""


def main(count: int, seed: int, only: object) -> int:
    return 0
