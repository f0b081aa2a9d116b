#!/usr/bin/env python3
"""A local server with S3's protocol (moto) that handles one request at a time.

    s3_server.py PORT

moto replaces its list of an object's versions without a lock: of two versions that are deleted at the same time it keeps one,
without its content, and its lists of versions are errors from then on. S3 does neither. Connections are still concurrent.
"""

import sys
import threading

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple


class OneAtATime:
    """A WSGI application whose requests wait for each other."""

    def __init__(self, application):
        self.application, self.lock = application, threading.Lock()

    def __call__(self, environ, start_response):
        with self.lock:
            chunks = self.application(environ, start_response)
            try:
                return [b"".join(chunks)]
            finally:
                close = getattr(chunks, "close", None)
                if close:
                    close()


def main():
    application = OneAtATime(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True,
               request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main()
