"""What a verdict is worth: a pure function of the Report, in named parts that add up."""
