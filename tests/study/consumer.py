"""Somebody else's program: uses what `hwbench compress` wrote by reading compress.json, and knows nothing of hwbench.

    python tests/study/consumer.py cut/compress.json dev=dev.tsv test=test.tsv

Prints JSON: network -> format -> file of sentences -> percent told right. Each sentence is asked alone, with no padding.
"""

import csv
import json
import sys
from pathlib import Path

import onnxruntime
from transformers import AutoTokenizer


def main() -> None:
    place = Path(sys.argv[1])
    files = dict(word.split("=", 1) for word in sys.argv[2:])
    document = json.loads(place.read_text())
    tokenizer = AutoTokenizer.from_pretrained(place.parent / document["tokenizer"], local_files_only=True)
    found = {}
    for network in (document["full"], *document["subnets"]):
        found[network["name"]] = {}
        for form, file in network["files"].items():
            session = onnxruntime.InferenceSession(place.parent / file, providers=["CPUExecutionProvider"])
            inputs = [(each.name, each.type, len(each.shape)) for each in session.get_inputs()]
            assert inputs == [("input_ids", "tensor(int64)", 2), ("attention_mask", "tensor(int64)", 2)], inputs
            assert [each.name for each in session.get_outputs()] == ["logits"]
            right = {name: percent(session, tokenizer, document["labels"], path) for name, path in files.items()}
            found[network["name"]][form] = right
    print(json.dumps(found))


def percent(session, tokenizer, labels, path) -> float:
    with Path(path).open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    right = 0
    for row in rows:
        texts = [row[name] for name in ("sentence", "sentence1", "sentence2") if name in row]
        told = tokenizer(*texts, truncation=True, return_tensors="np")
        (logits,) = session.run(["logits"], {name: told[name] for name in ("input_ids", "attention_mask")})
        right += labels[int(logits[0].argmax())] == row["label"]
    return 100 * right / len(rows)


if __name__ == "__main__":
    main()
