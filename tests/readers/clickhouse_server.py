"""ClickHouse's HTTP interface in front of chdb, with one user; it can return other bodies than rows."""

import contextlib
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import chdb

USER, PASSWORD = "reader", "a password: 1 & 2"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        server = self.server
        statement = self.rfile.read(int(self.headers["Content-Length"])).decode()
        parameters = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        server.requests.append((self.path, statement))
        if (self.headers["X-ClickHouse-User"], self.headers["X-ClickHouse-Key"]) != (USER, PASSWORD):
            return self.respond(403, f"Code: 516. DB::Exception: {self.headers['X-ClickHouse-User']}: Authentication failed")
        if server.garbage is not None:
            return self.respond(200, server.garbage)
        try:
            with server.lock:
                rows = str(chdb.query(statement, parameters["default_format"]))
        except Exception as error:
            return self.respond(500, str(error))
        return self.respond(200, rows)

    def respond(self, status, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class ClickhouseServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        # Each request as its path and its statement.
        self.requests = []
        # The body of every response, in place of rows.
        self.garbage = None
        # chdb runs one statement at a time.
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @contextlib.contextmanager
    def returning(self, body):
        """Returns this body in place of rows."""
        self.garbage = body
        try:
            yield
        finally:
            self.garbage = None

    def variables(self, password=PASSWORD):
        """The settings of a process that uses the server."""
        return {"PENNON_CLICKHOUSE_URL": self.url, "PENNON_CLICKHOUSE_USER": USER, "PENNON_CLICKHOUSE_PASSWORD": password}
