r"""Makes the text files that ship inside ptx/datasets/data from their public sources.

    python tools/pack_text_datasets.py sentence-polarity SOURCE.tsv[.gz] \
        ptx/datasets/data/sentence_polarity.tsv.xz
    python tools/pack_text_datasets.py ud-ewt TRAIN.conllu[.gz] DEV.conllu[.gz] TEST.conllu[.gz] \
        ptx/datasets/data/ud_ewt.tsv.xz

SOURCE.tsv has lines `label<TAB>sentence`: the lines of rt-polarity.neg with label 0, then those of
rt-polarity.pos with label 1 (NLTK's package `sentence_polarity`). The CoNLL-U files are those of UD English
EWT. What is changed on the way is stated in ptx/datasets/data/LICENSES.md. Needs the standard library alone.
"""

import argparse
import contextlib
import gzip
import lzma
import re
from collections.abc import Iterator
from pathlib import Path


def read(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")


def write(path: Path, lines: list[str]) -> None:
    packed = lzma.compress(
        "".join(f"{line}\n" for line in lines).encode("utf-8"), preset=9 | lzma.PRESET_EXTREME
    )
    path.write_bytes(packed)
    print(f"{path}: {len(lines)} sentences, {len(packed)} bytes")


def repair_encoding(sentence: str) -> str:
    """Undo UTF-8 read as Latin-1 ("clichÃ©" for "cliché") and Windows-1252 read as Latin-1 (C1 controls)."""
    with contextlib.suppress(UnicodeError):  # raised where it was not doubly encoded
        sentence = sentence.encode("latin-1").decode("utf-8")
    return re.sub("[\x80-\x9f]", lambda match: match[0].encode("latin-1").decode("cp1252"), sentence)


def words_only(sentence: str) -> str:
    """The sentence without punctuation, case and spacing: equal for sentences that differ in nothing else."""
    return " ".join(re.findall(r"\w+", sentence.lower()))


def sentence_polarity(source: str) -> list[str]:
    lines, seen = [], set()
    for line in source.rstrip("\n").split("\n"):
        label, sentence = line.split("\t")
        words = repair_encoding(sentence).split()
        key = words_only(" ".join(words))
        if label not in ("0", "1") or not words:
            raise ValueError(f"expected label 0 or 1, a tab and a sentence; got {line!r}")
        if key and key in seen:
            print(f"dropped, repeats an earlier sentence: {line!r}")
            continue
        seen.add(key)
        lines.append(f"{label}\t{' '.join(words)}")
    return lines


def conllu_sentences(source: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """(document id, forms, UPOS tags) of each sentence, without multiword-token ranges and empty nodes."""
    document = ""
    for block in source.strip().split("\n\n"):
        forms, tags = [], []
        for line in block.split("\n"):
            if line.startswith("# newdoc id = "):
                document = line.removeprefix("# newdoc id = ").strip()
            elif not line.startswith("#"):
                index, form, _, tag, *_ = line.split("\t")
                if index.isdigit():
                    forms.append(form)
                    tags.append(tag)
        if any(not form or len(form.split()) != 1 for form in forms):
            raise ValueError(f"a form is empty or holds white space: {forms}")
        yield document, forms, tags


def ud_ewt(sources: dict[str, str]) -> list[str]:
    return [
        f"{part}\t{document}\t{' '.join(forms)}\t{' '.join(tags)}"
        for part, source in sources.items()
        for document, forms, tags in conllu_sentences(source)
    ]


def main() -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    commands = parser.add_subparsers(dest="dataset", required=True)
    polarity = commands.add_parser("sentence-polarity")
    polarity.add_argument("source", type=Path)
    ewt = commands.add_parser("ud-ewt")
    for part in ("train", "dev", "test"):
        ewt.add_argument(part, type=Path)
    for command in (polarity, ewt):
        command.add_argument("output", type=Path)
    arguments = parser.parse_args()
    if arguments.dataset == "sentence-polarity":
        lines = sentence_polarity(read(arguments.source))
    else:
        parts = {"train": arguments.train, "validation": arguments.dev, "test": arguments.test}
        lines = ud_ewt({part: read(path) for part, path in parts.items()})
    write(arguments.output, lines)


if __name__ == "__main__":
    main()
