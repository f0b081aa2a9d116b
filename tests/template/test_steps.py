"""The steps of `.ci/run`: those in the background, and what is reported of them."""

import pathlib
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run_steps(script):
    return subprocess.run(
        ["bash", "-c", f"source {ROOT}/.ci/steps.sh\n{script}"],
        capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False,
    )


class BackgroundSteps(unittest.TestCase):
    def test_steps_after_a_join_are_joined_as_well(self):
        done = run_steps(
            'background first echo "output of the first"\njoin\n'
            'background second echo "output of the second"\nbackground third true\njoin\n'
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("output of the first"), 1)
        self.assertEqual(done.stdout.count("output of the second"), 1)
        for name in ("first", "second", "third"):
            self.assertIn(f"s  {name}, in the background", done.stdout)

    def test_the_step_that_fails_is_named_with_its_status(self):
        done = run_steps('background first true\njoin\nbackground second sh -c "echo why; exit 3"\njoin\n')
        self.assertEqual(done.returncode, 3)
        self.assertIn("why", done.stdout)
        self.assertIn("FAILED: second", done.stdout)

    def test_a_failed_step_ends_those_in_the_background(self):
        done = run_steps("background sleeper sleep 1000\nstep failing false\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAILED: failing", done.stdout)


if __name__ == "__main__":
    unittest.main()
