"""The functions of `time`, as they are when jitclient is imported: programs, above all tests, replace them.

A mock of as many values as a test asks for, or a clock that stands still, is for the program only. Other modules may be
imported while there is one, so they take the functions from here.
"""

from time import monotonic as monotonic
from time import perf_counter as perf_counter
from time import perf_counter_ns as perf_counter_ns
from time import sleep as sleep
from time import thread_time as thread_time
from time import time as time
