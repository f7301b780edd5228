"""Records one program of an interpreted kernel and replays the other programs from the record.

The Python code between two operations of Triton's builder runs once, for the recorded program.
Programs which do not share memory replay each recorded operation once for a whole batch, on NumPy
arrays with an extra first axis.

Example: a row sum, launched as `kernel[(64,)](x, out, 1000, BLOCK=1024)`, is recorded at program 0:

    slot   operation                operands     value for program 0
    0, 1   (arguments x, out)                    addresses
    2      create_get_program_id    axis 0       0
    3      create_mul               2, 1000      0
    ...    create_addptr            0, ...       1,024 addresses
    9      create_masked_load       8, mask      1,024 elements
    10     reduce                   9            the row's sum
    ...    create_store             11, 10

Programs 1 to 63 then run as one batch: slot 2 becomes the array [[1], [2], ..., [63]], slot 9 an
array of shape (63, 1024), slot 10 one of shape (63, 1).

A Python `if` on a value, as `if tl.program_id(0) == 0:`, reads the value and ends a node of the
record. Programs are grouped by the bytes that they read; each group continues in the child node
recorded for these bytes, and a program without a child node is interpreted and recorded in turn.

The modules: recorder.py watches the recorded program; language.py holds the values of a record;
fast_paths.py, operations.py, whole_batches.py and batched_combinations.py find NumPy functions
equal, bit for bit, to the interpreter's own; programs.py replays a single program; batches.py
replays many, under the guard of batch_guard.py, which detects programs that share memory.
"""
