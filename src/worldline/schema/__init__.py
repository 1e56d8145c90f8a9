"""What a session is: contract, inventory, layout, plan, manifest, receipt, ids and epochs. Values only: no torch, no
I/O, no time.
"""
