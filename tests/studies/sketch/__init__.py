"""A fourth study, as small as one can be: do coins with a share p of heads fall on heads p of the time?"""
