"""What a verdict exercised of a kernel, as values of a report. How that is found out belongs to tools/judging."""
