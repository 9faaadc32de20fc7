"""infinistore_server.py OPTIONS: the server of the package infinistore, for users without rights."""
import infinistore.server as server

# It lowers its oom_score_adj, which only root may do.
server.prevent_oom = lambda: None
server.main()
