"""The study of reading: are units better read by the points at their zero set than by those that activate them most?"""
