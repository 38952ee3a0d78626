"""Write text with the saved character LSTM, in a process of its own.

python examples/char_rnn/sample.py [--out build/char_rnn] [--prompt "The "] [--length 600]
"""

from __future__ import annotations

import argparse
import pathlib

from text import encode

import opscope


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/char_rnn"))
    parser.add_argument("--prompt", default='The "')
    parser.add_argument("--length", type=int, default=600)
    parser.add_argument("--temperature", type=float, default=0.6)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--beam", type=int, default=0, help="beam search of this width instead")
    args = parser.parse_args()

    net, scope = opscope.load(args.out / "char_rnn.pb")
    alphabet = net.desc.metadata["alphabet"]
    generator = opscope.Generator(net, scope)
    prompt = encode(args.prompt, alphabet)
    if args.beam:
        tokens = generator.beam([prompt], args.length, width=args.beam)[0][0].tokens
    else:
        (tokens,) = generator.sample(
            [prompt],
            args.length,
            temperature=args.temperature,
            top_k=args.top_k,
            seed=args.seed,
        )
    print(args.prompt + "".join(alphabet[token] for token in tokens))


if __name__ == "__main__":
    main()
