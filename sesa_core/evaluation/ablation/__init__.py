"""What each part of the method is worth: arms, the numbers of a cell (arm x seed), their statistics, and the document."""
