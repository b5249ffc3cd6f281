import runpy
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "pack_text_datasets.py"
pack = runpy.run_path(str(TOOL))

CONLLU = """\
# newdoc id = weblog-one
# sent_id = weblog-one-0001
# text = Don't go.
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVB\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_
3.1\tgone\tgo\tVERB\tVBN\t_\t_\t_\t_\t_
4\t#\t#\tSYM\t.\t_\t3\tpunct\t_\t_

# sent_id = weblog-one-0002
1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_

# newdoc id = email-two
1\tNo\tno\tINTJ\tUH\t_\t0\troot\t_\t_

"""


def test_conllu_keeps_syntactic_words_and_their_document():
    assert pack["ud_ewt"]({"train": CONLLU}) == [
        "train\tweblog-one\tDo n't go #\tAUX PART VERB SYM",
        "train\tweblog-one\tYes\tINTJ",
        "train\temail-two\tNo\tINTJ",
    ]


def test_conllu_with_white_space_in_a_form_is_refused():
    with pytest.raises(ValueError, match="white space"):
        pack["ud_ewt"]({"train": CONLLU.replace("Yes", "Oh yes")})


@pytest.mark.parametrize(
    ("published", "repaired"),
    [
        ("cliché", "cliché"),
        ("clichÃ©", "cliché"),
        ("then \x97 now", "then — now"),
        ("then Â\x97 now", "then — now"),
        ("wide \xa0 space ", "wide space"),
        ("Ã alone", "Ã alone"),
    ],
)
def test_polarity_encoding_is_repaired_where_broken(published, repaired):
    assert pack["sentence_polarity"](f"0\t{published}\n") == [f"0\t{repaired}"]


def test_polarity_repeats_are_dropped_up_to_punctuation():
    lines = "0\t. . . a mess . . .\n1\tanother\n0\ta mess .\n0\t!\n0\t?\n"
    assert pack["sentence_polarity"](lines) == ["0\t. . . a mess . . .", "1\tanother", "0\t!", "0\t?"]
    with pytest.raises(ValueError, match="label 0 or 1"):
        pack["sentence_polarity"]("2\tx\n")
