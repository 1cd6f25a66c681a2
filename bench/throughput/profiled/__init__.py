"""The app in bench/throughput wraps another app to see where its time goes."""
