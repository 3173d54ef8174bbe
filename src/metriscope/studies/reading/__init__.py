"""The study of reading: units explained by the points at their zero sets or by those that activate them most."""
