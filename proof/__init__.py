"""What shows, simulates, breaks and measures Lockstep. Nothing of it is deployed.

`demo` shows the main job, `simulation` runs the engine in virtual time, `chaos` kills real
processes, `bench` measures what a message costs; `testbed`, on which all but the simulation stand,
starts and breaks a local cloud.
"""
