"""How the blocks of a page are read, and what counts as its output."""

import unittest

from blocks import Block, PageError, missing_part, read_blocks
from check_guides import headings
from syntax import CHECKS, check_syntax


def page(*lines):
    return read_blocks("\n".join(lines) + "\n")


class Blocks(unittest.TestCase):
    def test_output_belongs_to_the_block_before_it(self):
        blocks = page("```sh", "echo a", "```", "text", "```text", "a", "```", "<!-- not run: needs AWS -->", "```sh", "sam build", "```")
        self.assertEqual([(it.marker, it.text) for it in blocks], [("", "echo a\n"), ("not run", "sam build\n")])
        self.assertEqual([it.text for it in blocks[0].output], ["a\n"])
        self.assertEqual(blocks[1].value, "needs AWS")

    def test_a_block_that_is_neither_run_nor_marked_is_an_error(self):
        for lines in (["```python", "print()", "```"], ["```yaml", "a: 1", "```"], ["```", "a", "```"], ["```text", "a", "```"], ["```sh", "a"],
                      ["<!-- not run -->", "```sh", "a", "```"], ["<!-- unknown: a -->", "```sh", "a", "```"],
                      ["<!-- not run: needs AWS -->", "```sh", "a", "```", "```text", "the output of no block", "```"]):
            with self.assertRaises(PageError, msg=lines):
                page(*lines)

    def test_output_is_compared_in_order_between_ellipses(self):
        def missing(language, expected, printed):
            return missing_part(Block(1, language, expected), printed)

        self.assertIsNone(missing("text", "a ... c\n", "a  b\n c\n"))
        self.assertEqual(missing("text", "a ... c", "c a"), "c")
        self.assertEqual(missing("text", "a b", "ab"), "a b")
        self.assertIsNone(missing("json", '{"a": 1, ... "b": [2, 3]}', '{"a":1,"x":0,"b":[2,3]}'))
        self.assertEqual(missing("json", '{"a": 2', '{"a":1}'), '{"a":2')

    def test_headings_are_those_of_links(self):
        self.assertEqual(list(headings("# A `b` c, d\n```sh\n# no heading\n```\n## E-f\n")), ["a-b-c-d", "e-f"])


class Syntax(unittest.TestCase):
    def test_invalid_blocks_are_errors(self):
        invalid = {"sh": "if true", "python": "def", "js": "const =", "toml": "a", "json": "{"}
        for language, text in invalid.items():
            with self.assertRaises(PageError, msg=language):
                check_syntax(Block(1, language, text), "here")
        with self.assertRaises(PageError):
            check_syntax(Block(1, "cobol", ""), "here")
        self.assertLessEqual(set(invalid), set(CHECKS))

    def test_valid_blocks_pass(self):
        for language, text in {"sh": "if true; then :; fi", "python": "x = 1", "js": "import a from 'a'; await a();", "toml": "a = 1", "json": "{}"}.items():
            check_syntax(Block(1, language, text), "here")


if __name__ == "__main__":
    unittest.main()
