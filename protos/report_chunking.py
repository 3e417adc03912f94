"""Send long reports in parts, so that the server can limit the length of messages.

gRPC receives a whole message before it passes it on, even from a peer that is not authenticated. So
the server's limit is low, and authenticated node controllers split longer reports.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from google.protobuf.message import DecodeError

from pliant.protos import node_pb2
from pliant.protos.codec_error import CodecError

#: The longest message that the server takes, bytes.
MAX_MESSAGE_BYTES = 64 << 10
#: The longest report, in parts, bytes.
MAX_REPORT_BYTES = 16 << 20
#: Leaves room for what is around a part.
_PART_BYTES = MAX_MESSAGE_BYTES - 1024


def split(report: node_pb2.NodeReport) -> Iterator[node_pb2.NodeReport]:
    """Yield a report unchanged if it is short enough for one message, otherwise its parts."""
    if report.ByteSize() <= _PART_BYTES:
        yield report
        return
    data = report.SerializeToString()
    for start in range(0, len(data), _PART_BYTES):
        end = start + _PART_BYTES
        part = node_pb2.ReportPart(data=data[start:end], last=end >= len(data))
        yield node_pb2.NodeReport(part=part)


async def join(reports: AsyncIterator[node_pb2.NodeReport]) -> AsyncIterator[node_pb2.NodeReport]:
    """Put the parts of split reports together, and yield the whole reports.

    Raises:
        CodecError: the parts of a report are too long together, or do not form a report.
    """
    data = bytearray()
    async for report in reports:
        if report.WhichOneof("body") != "part":
            yield report
            continue
        data += report.part.data
        if len(data) > MAX_REPORT_BYTES:
            raise CodecError(f"a report of more than {MAX_REPORT_BYTES} bytes")
        if report.part.last:
            try:
                yield node_pb2.NodeReport.FromString(bytes(data))
            except DecodeError:
                raise CodecError("the parts of a report are no report") from None
            data.clear()
