#!/usr/bin/env python3
"""Goldens of regular expressions: which strings Python's re matches whole, with re.ASCII.

    python tools/grammar_goldens.py            writes src/model/goldens/regex.json
    python tools/grammar_goldens.py --check    compares it with what is computed now
"""
import json
import random
import re
import sys
from pathlib import Path

PATH = Path(__file__).resolve().parent.parent / "src/model/goldens/regex.json"

# A pattern, the characters of random strings, and strings that random ones would miss.
PATTERNS = [
    ("", "ab", []),
    ("a", "ab", []),
    ("a|b|cd", "abcd", []),
    ("|a", "ab", []),
    ("(a|b)*c", "abc", []),
    ("(ab)+", "ab", ["ababab", "ababa"]),
    ("a?b?c?", "abc", []),
    ("a{3}", "a", []),
    ("a{2,}b", "ab", ["aaaaaab"]),
    ("(a|bc){2,3}", "abc", ["bcbcbc", "abca"]),
    ("a{0}b", "ab", []),
    ("(a*)*b", "ab", []),
    ("(a|a)*b", "ab", []),
    ("(a+)+c", "abc", []),
    ("(|a)+b", "ab", []),
    ("((a{1,2}){1,2}){1,2}", "a", ["a" * 8, "a" * 9]),
    ("(a?){5}a{5}", "a", ["a" * 10, "a" * 11]),
    ("a*?b+?c??", "abc", []),
    ("[abc]x", "abcdx", []),
    ("[^abc]x", "abcdx", ["\u00e9x", "\U0001f600x", "\nx"]),
    ("[a-c1-3-]+", "abcd123-", []),
    ("[\\]\\\\^-]+", "]\\^-a", []),
    ("[.*+?(){}|$]+", ".*+?(){}|$a", []),
    (".", "a\n", ["\u00e9", "\U0001f600", "\u20ac"]),
    ("...", "ab\u00e9\U0001f600", []),
    ("\\d+\\.\\d{2}", "019.", ["3.14", "12.50"]),
    ("\\w+@\\w+\\.(com|org)", "ab@.com", ["a_1@b.org", "a@b.comx"]),
    ("\\s*a\\S\\s", " ab\t\n", []),
    ("\\D\\W\\S", "a1_ -", ["\u00e9\u00e9\u00e9", "--\u0663"]),
    ("[\\d\\s]+", "1 a\t", []),
    ("[^\\w]+", "a_ -\u00e9", []),
    ("\\x41\\u00e9\\n\\t\\r\\f\\v\\0", "A\u00e9", ["A\u00e9\n\t\r\f\v\0"]),
    ("\\[\\]\\{\\}\\(\\)\\/\\-\\.", "[]{}", ["[]{}()/-."]),
    ("[\\u00e0-\\u00ff]+", "\u00df\u00e0\u00e9\u00ff\u0100", []),
    ("[\\u07fe-\\u0801]", "\u07fd\u07fe\u07ff\u0800\u0801\u0802", []),
    ("[\\ud7f0-\ue010]", "\ud7ef\ud7f0\ud7ff\ue000\ue010\ue011", []),
    ("[\uffff-\U00010001]", "\ufffe\uffff\U00010000\U00010001\U00010002", []),
    ("[\u4e00-\u9fff]{2}", "\u4dff\u4e00\u597d\u9fff\ua000", []),
    ("[\U0001f600-\U0001f64f]+", "\U0001f5ff\U0001f600\U0001f64f\U0001f650", []),
    ("[^\\x00-\\x7f]", "a\x7f\x80\u07ff\u0800\uffff\U00010000\U0010ffff", []),
    ("(?:a)(?P<n>b)", "ab", []),
    ("^a$|^b|c$", "abc", []),
    ("(0[1-9]|1[0-2])/([0-2][0-9]|3[01])", "0123/", ["12/31", "00/10", "13/01"]),
    ("-?(0|[1-9]\\d*)(\\.\\d+)?([eE][+-]?\\d+)?", "-019.eE+", ["-12.5e+10", "01", "1e", "0.5"]),
    ("(25[0-5]|2[0-4]\\d|1?\\d?\\d)(\\.(25[0-5]|2[0-4]\\d|1?\\d?\\d)){3}", "125.", ["255.0.10.199", "256.1.1.1", "1.2.3"]),
    ("#[0-9a-fA-F]{6}", "#0aFg", ["#00fFaA", "#00ff0"]),
    ("(\"([^\"\\\\]|\\\\.)*\")", "\"\\a", ["\"a\\\"b\"", "\"a\"b\""]),
    ("(a|ab)(c|bcd)(d*)", "abcd", ["abcd", "abcdd", "acd"]),
    ("(.*a.{3})", "ab", ["bbabbb", "aaaa", "abbbb"]),
    ("yes|no|maybe( not)?", "yesno", ["yes", "no", "maybe", "maybe not", "maybe no"]),
]


def goldens():
    chance = random.Random(1)
    cases = []
    for pattern, alphabet, more in PATTERNS:
        compiled = re.compile(pattern, re.ASCII)
        texts = {"", *more}
        for _ in range(400):
            texts.add("".join(chance.choice(alphabet) for _ in range(chance.randint(1, 7))))
        for text in more:  # neighbours of those that matter
            for _ in range(10):
                i = chance.randrange(len(text) + 1)
                texts.add(text[:i] + chance.choice(alphabet) + text[i + chance.randint(0, 1):])
        texts = sorted(texts)
        chance.shuffle(texts)
        yes = [text for text in texts if compiled.fullmatch(text)]
        no = [text for text in texts if not compiled.fullmatch(text)]
        cases.append({"pattern": pattern, "yes": sorted(yes[:25]), "no": sorted(no[:25])})
    return cases


def main():
    text = json.dumps(goldens(), ensure_ascii=False, indent=None).replace("}, {", "},\n{") + "\n"
    if "--check" in sys.argv[1:]:
        if PATH.read_text(encoding="utf-8") != text:
            sys.exit(f"{PATH.name} is not what Python's re matches")
        print(f"{PATH.name}: as Python's re matches")
        return
    PATH.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
