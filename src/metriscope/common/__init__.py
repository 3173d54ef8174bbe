"""What every folder uses: checks of arguments, whole files, threads, progress bars, models lent and given back."""
