<?php
/** A control connection of the daemon: a gateway that starts and stops workers. Page: runtime/wire-protocol (5 to 9). */

declare(strict_types=1);

namespace Fngw;

/** No peer may block the daemon: sockets do not wait, and what they do not take is kept up to a limit. */
final class Control
{
    /** Output waiting to be sent above which further output is dropped, bytes. */
    private const MAX_WAITING_OUTPUT_BYTES = 1024 * 1024;

    /** @var resource */
    public $socket;
    /** Bytes the socket did not take yet. */
    public string $unsent = '';
    private Daemon $daemon;
    private FrameReader $reader;
    private bool $greeted = false;
    /** True when the connection is to be closed once `unsent` is out. */
    private bool $closing = false;
    private bool $isClosed = false;
    private int $dropped = 0;

    /** @param resource $socket */
    public function __construct($socket, Daemon $daemon)
    {
        \stream_set_blocking($socket, false);
        $this->socket = $socket;
        $this->daemon = $daemon;
        $this->reader = new FrameReader();
    }

    public function read(): void
    {
        $bytes = @\stream_socket_recvfrom($this->socket, READ_BYTES);
        if ($bytes === '' || ($bytes === false && \feof($this->socket))) {
            $this->close();
            return;
        }
        if ($this->closing || $bytes === false) {
            return;
        }
        try {
            $this->reader->push($bytes);
            while (!$this->closing && !$this->daemon->hasForked() && ($frame = $this->reader->next()) !== null) {
                $this->take($frame[0], $frame[1], parseHeader($frame[2]), $frame[3]);
            }
        } catch (ProtocolError $error) {
            $this->refuse($error->getMessage());
        }
    }

    /** @param array<string, mixed> $header */
    private function take(int $kind, int $id, array $header, string $body): void
    {
        if (!$this->greeted) {
            $this->greet($kind, $header, $body);
        } elseif ($kind === Kind::START) {
            $this->daemon->start($this, $id, $header);
        } elseif ($kind === Kind::STOP) {
            [$worker, $grace] = [$header['worker'] ?? null, $header['grace_ms'] ?? 0];
            if (\is_string($worker)) {
                $this->daemon->stop($this, $worker, \is_int($grace) ? $grace : 0);
            }
        } elseif ($kind === Kind::PING) {
            $this->pong($id);
        } elseif ($kind !== Kind::PONG) {
            throw new ProtocolError("a daemon does not take frames of kind $kind");
        }
    }

    /** @param array<string, mixed> $header */
    private function greet(int $kind, array $header, string $body): void
    {
        if ($kind !== Kind::HELLO) {
            throw new ProtocolError('the first frame must be hello');
        }
        if ($body !== \chr(PROTOCOL_VERSION)) {
            $version = $body === '' ? 'none' : \ord($body);
            throw new ProtocolError("protocol version $version is not spoken here, only " . PROTOCOL_VERSION);
        }
        if (($header['role'] ?? null) !== 'control') {
            throw new ProtocolError('this socket serves the role control only');
        }
        $this->greeted = true;
        $ready = ['runtime' => 'php', 'version' => \PHP_VERSION, 'pid' => \posix_getpid()];
        $this->send(encodeFields(Kind::READY, 0, $ready));
        if (($header['ready_workers'] ?? null) === true) {
            $this->daemon->meet($this);
        }
    }

    /** @internal called by Daemon */
    public function pong(int $id): void
    {
        if (!$this->greeted) {
            return;
        }
        $trouble = $this->daemon->trouble();
        $this->send($trouble === null ? encodeFrame(Kind::PONG, $id) : encodeFields(Kind::PONG, $id, ['trouble' => $trouble]));
    }

    /** Names the error and closes, when it is sent. */
    private function refuse(string $message): void
    {
        $this->closing = true;
        $this->send(encodeError(0, ['code' => 'protocol', 'message' => $message]));
    }

    private function close(): void
    {
        if (!$this->isClosed) {
            $this->isClosed = true;
            $this->daemon->close($this);
        }
    }

    public function send(string $frame): void
    {
        $this->unsent .= $frame;
        $this->flush();
    }

    public function sendLog(string $worker, string $stream, string $text): void
    {
        if ($text === '') {
            return;
        }
        if (\strlen($this->unsent) > self::MAX_WAITING_OUTPUT_BYTES) {
            $this->dropped += \strlen($text);
            return;
        }
        $note = $this->dropped > 0 ? "[{$this->dropped} bytes of output dropped]\n" : '';
        $this->dropped = 0;
        foreach (logPieces($note . $text) as $piece) {
            $this->send(encodeFields(Kind::LOG, 0, ['worker' => $worker, 'stream' => $stream], $piece));
        }
    }

    public function flush(): void
    {
        if ($this->unsent !== '') {
            $sent = @\stream_socket_sendto($this->socket, $this->unsent);
            if ($sent > 0) {
                $this->unsent = (string) \substr($this->unsent, $sent);
            }
        }
        if ($this->closing && $this->unsent === '') {
            $this->close();
        }
    }
}
