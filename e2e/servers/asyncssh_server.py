"""An SFTP server of asyncssh: PORT HOST-KEY AUTHORIZED-KEYS."""

import asyncio
import sys

import asyncssh


async def serve(port, host, authorized):
    server = await asyncssh.listen("127.0.0.1", port, server_host_keys=[host], authorized_client_keys=authorized,
                                   sftp_factory=asyncssh.SFTPServer)
    await server.wait_closed()


asyncio.run(serve(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
