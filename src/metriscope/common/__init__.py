"""What every package uses: argument checks, errors, atomic writes, hashes, threads, progress bars, eval mode."""
