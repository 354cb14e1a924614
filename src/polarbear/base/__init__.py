"""What every room may use: errors, types of arrays, findings, files. Imports nothing of ours."""
