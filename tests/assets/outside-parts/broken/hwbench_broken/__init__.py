"""The parts of hwbench_outside, each with one deliberate mistake."""
