"""The app in proof/bench/throughput wraps another app to see where its time goes."""
