"""An S3 server that misbehaves on demand: enough of the protocol for Delta tables, honest about conditions or not.

A process of its own, for delta-rs holds the interpreter's lock while it waits for some answers. It writes its port to
stdout and ends when its stdin does.
"""

from __future__ import annotations

import json
import re
import secrets
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

BUCKET = "bucket"
"""The one that is there at once; a put of a bucket makes another."""
CONTROL = "_control"


@dataclass(kw_only=True)
class ObjectStorage:
    """Objects by bucket and key. `honours_conditions` False: a put ignores ``If-None-Match``."""

    honours_conditions: bool = True
    refuse_with: str | None = None
    """An S3 error code that answers every request."""
    buckets: set[str] = field(default_factory=lambda: {BUCKET})
    objects: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, key: str, body: bytes, *, only_new: bool) -> int:
        with self.lock:
            if only_new and self.honours_conditions and key in self.objects:
                return 412
            self.objects[key] = body
            return 200

    def listing(self, prefix: str, delimiter: str, after: str) -> tuple[list[str], list[str]]:
        with self.lock:
            keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        if not delimiter:
            return keys, []
        folders = {prefix + key[len(prefix) :].split("/")[0] + "/" for key in keys if "/" in key[len(prefix) :]}
        return [key for key in keys if "/" not in key[len(prefix) :]], sorted(folders)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    storage: ObjectStorage
    bucket: str
    """Of the request, with the slash behind it: how keys of objects begin."""

    def do_GET(self) -> None:
        key, query = self._target()
        if key is None:
            return
        if not key:
            self._list(query)
        elif key in self.storage.objects:
            self._object(self.storage.objects[key])
        else:
            self._fail(404, "NoSuchKey")

    do_HEAD = do_GET  # noqa: N815

    def do_PUT(self) -> None:
        key, query = self._target()
        body = self._body()
        if key is None:
            return
        if "partNumber" in query:
            self.storage.uploads[query["uploadId"]][int(query["partNumber"])] = body
            self._answer(200, headers={"ETag": '"part"'})
            return
        status = self.storage.put(key, body, only_new=self.headers.get("If-None-Match") == "*")
        if status == 200:
            self._answer(200, headers={"ETag": f'"{hash(body):x}"'})
        else:
            self._fail(status, "PreconditionFailed")

    def do_POST(self) -> None:
        key, query = self._target()
        body = self._body()
        if key is None:
            return
        if "delete" in query:
            found = [unescape(key.decode()) for key in re.findall(rb"<Key>(.*?)</Key>", body)]
            for each in found:
                self.storage.objects.pop(self.bucket + each, None)
            deleted = "".join(f"<Deleted><Key>{escape(each)}</Key></Deleted>" for each in found)
            self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())
        elif "uploads" in query:
            upload = secrets.token_hex(8)
            self.storage.uploads[upload] = {}
            text = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            self._answer(200, text.encode())
        else:
            parts = self.storage.uploads.pop(query["uploadId"])
            self.storage.put(key, b"".join(parts[number] for number in sorted(parts)), only_new=False)
            text = "<CompleteMultipartUploadResult><ETag>&quot;whole&quot;</ETag></CompleteMultipartUploadResult>"
            self._answer(200, text.encode())

    def do_DELETE(self) -> None:
        key, _ = self._target()
        if key is not None:
            self.storage.objects.pop(key, None)
            self._answer(204)

    def _target(self) -> tuple[str | None, dict[str, str]]:
        """Bucket and key (empty for the bucket itself); None when the request was answered already."""
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        if bucket == CONTROL:
            self._control(query)
            return None, query
        if self.storage.refuse_with:
            self._fail(403, self.storage.refuse_with)
            return None, query
        if self.command == "PUT" and not key:
            self.storage.buckets.add(bucket)
            self._answer(200)
            return None, query
        if bucket not in self.storage.buckets:
            self._fail(404, "NoSuchBucket")
            return None, query
        self.bucket = f"{bucket}/"
        return key and self.bucket + key, query

    def _control(self, query: dict[str, str]) -> None:
        """Change how the storage behaves; answer with all keys of a bucket."""
        if "honours_conditions" in query:
            self.storage.honours_conditions = query["honours_conditions"] == "True"
        if "refuse_with" in query:
            self.storage.refuse_with = query["refuse_with"]
        keys = sorted(key for key in self.storage.objects if key.startswith(query.get("bucket", BUCKET) + "/"))
        self._answer(200, json.dumps([key.partition("/")[2] for key in keys]).encode())

    def _list(self, query: dict[str, str]) -> None:
        prefix, after = (self.bucket + query.get(name, "") for name in ("prefix", "start-after"))
        keys, folders = self.storage.listing(prefix, query.get("delimiter", ""), after)
        own = len(self.bucket)
        modified = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
        contents = "".join(
            f"<Contents><Key>{escape(key[own:])}</Key><Size>{len(self.storage.objects.get(key, b''))}</Size>"
            f"<LastModified>{modified}</LastModified><ETag>&quot;e&quot;</ETag></Contents>"
            for key in keys
        )
        common = "".join(f"<CommonPrefixes><Prefix>{escape(name[own:])}</Prefix></CommonPrefixes>" for name in folders)
        text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}{common}</ListBucketResult>"
        self._answer(200, text.encode())

    def _object(self, body: bytes) -> None:
        headers = {"ETag": '"e"', "Last-Modified": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())}
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            self._answer(200, body, headers=headers)
            return
        first, last = wanted.groups()
        start = len(body) - int(last) if not first else int(first)
        end = len(body) if not first or not last else min(int(last) + 1, len(body))
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(body)}"
        self._answer(206, body[start:end], headers=headers)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _fail(self, status: int, code: str) -> None:
        self._body() if self.command == "GET" else None
        text = f"<Error><Code>{code}</Code><AWSAccessKeyId>AKIAEXAMPLEKEY</AWSAccessKeyId></Error>"
        self._answer(status, text.encode())

    def _answer(self, status: int, body: bytes = b"", *, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Nothing on stderr."""


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"storage": ObjectStorage()}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    main()
