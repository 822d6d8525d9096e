"""A daemon that is handed what connects to a port: `python daemon.py SOCKET HOST` prints the port, and a token to send
there at once: what a daemon is sent, it runs. Ends with its input.
"""

import os
import secrets
import signal
import socket
import sys
import threading
from pathlib import Path

from jitclient.wire.address import Address
from jitserver.daemon.daemon import Daemon
from jitserver.daemon.options import Options


class Open(Daemon):
    def start(self) -> None:
        super().start()
        threading.Thread(target=self._let_in, daemon=True).start()
        threading.Thread(target=self._end_with_input, daemon=True).start()

    def _let_in(self) -> None:
        listener, token = socket.create_server((sys.argv[2], 0)), secrets.token_hex()
        print(listener.getsockname()[1], token, flush=True)
        while True:
            sock, _ = listener.accept()
            if sock.recv(len(token), socket.MSG_WAITALL).decode() == token:
                self._listener.admit(sock, pid=0)
            else:
                sock.close()

    def _end_with_input(self) -> None:
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGTERM)


Open(Options(Address(Path(sys.argv[1])))).run()
