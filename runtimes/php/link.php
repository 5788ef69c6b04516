<?php
/** A worker's connection to the gateway: blocking frames in, frames out. Page: runtime/wire-protocol. */

declare(strict_types=1);

namespace Fngw;

final class Link
{
    /** Nanoseconds to wait for the gateway to close its side. */
    private const HANG_UP_NS = 500_000_000;

    public FrameReader $reader;
    /** True when the gateway closed the connection. */
    public bool $isClosed = false;
    /** Monotonic ns of the last look for frames. */
    public int $lookedAt = 0;
    private Anchors $anchors;
    /** @var resource */
    private $socket;

    /** @param resource $socket */
    private function __construct($socket)
    {
        $this->socket = $socket;
        $this->reader = new FrameReader();
        $this->anchors = new Anchors();
    }

    /**
     * The first peer that greets as a gateway does. Others are refused and do not use up the worker.
     *
     * @param resource $listener
     * @return self|null null when none came in time
     */
    public static function accept($listener, int $seconds): ?self
    {
        $links = [];
        $until = \hrtime(true) + $seconds * 1_000_000_000;
        while (($left = $until - \hrtime(true)) > 0) {
            $read = ['listener' => $listener];
            foreach ($links as $number => $link) {
                $read[$number] = $link->socket;
            }
            $write = $except = null;
            if (!@\stream_select($read, $write, $except, \intdiv($left, 1_000_000_000), 0)) {
                if ($left < 1_000_000_000) {
                    break;
                }
                continue;
            }
            foreach ($read as $number => $_) {
                if ($number === 'listener') {
                    $socket = @\stream_socket_accept($listener, 0);
                    if ($socket !== false) {
                        $links[(int) $socket] = new self($socket);
                    }
                    continue;
                }
                $greeted = $links[$number]->readHello();
                if ($greeted === true) {
                    return $links[$number];
                }
                if ($greeted === false) {
                    // Not left to the last reference: `$socket` may hold one until the next peer connects.
                    \fclose($links[$number]->socket);
                    unset($links[$number]);
                }
            }
        }
        return null;
    }

    /** @return bool|null null when more bytes are needed */
    private function readHello(): ?bool
    {
        $bytes = @\stream_socket_recvfrom($this->socket, READ_BYTES);
        if ($bytes === '' || $bytes === false) {
            return false;
        }
        try {
            $this->reader->push($bytes);
            $frame = $this->reader->next();
            if ($frame === null) {
                return null;
            }
            if ($frame[0] !== Kind::HELLO || (parseHeader($frame[2])['role'] ?? null) !== 'worker') {
                throw new ProtocolError('the first frame must be hello with the role worker');
            }
            if ($frame[3] !== \chr(PROTOCOL_VERSION)) {
                throw new ProtocolError('only protocol version ' . PROTOCOL_VERSION . ' is spoken here');
            }
            return true;
        } catch (ProtocolError $error) {
            $this->refuse($error);
            return false;
        }
    }

    /** @return array{0: int, 1: int, 2: string, 3: string}|null null when the connection is closed */
    public function readFrame(): ?array
    {
        while (($frame = $this->reader->next()) === null) {
            if (!$this->read()) {
                return null;
            }
        }
        return $frame;
    }

    /** Waits for bytes; a signal may end the wait early. @return bool false when the connection is closed */
    public function read(): bool
    {
        $wanted = $this->reader->wanted();
        if ($wanted > READ_BYTES) {
            $this->anchors->drop();
        }
        $bytes = @\stream_socket_recvfrom($this->socket, $wanted);
        $this->lookedAt = \hrtime(true);
        if ($bytes !== '' && $bytes !== false) {
            $this->reader->push($bytes);
        } elseif ($bytes === '' || \feof($this->socket)) {
            $this->isClosed = true;
        }
        return !$this->isClosed;
    }

    /** True when bytes, or the end of the connection, can be read without waiting. */
    public function canRead(): bool
    {
        $this->lookedAt = \hrtime(true);
        $read = [$this->socket];
        $write = $except = null;
        return @\stream_select($read, $write, $except, 0, 0) === 1;
    }

    /** Waits until all of it is taken. What is written to a closed connection is lost. */
    public function write(string $bytes): void
    {
        $sent = @\stream_socket_sendto($this->socket, $bytes);
        while ($sent !== \strlen($bytes)) {
            if ($sent > 0) {
                $bytes = \substr($bytes, $sent);
            } elseif ($this->isClosed || \feof($this->socket)) {
                $this->isClosed = true;
                return;
            }
            $sent = @\stream_socket_sendto($this->socket, $bytes);
        }
    }

    public function refuse(ProtocolError $error): void
    {
        $this->write(encodeError(0, ['code' => 'protocol', 'message' => $error->getMessage()]));
        $this->hangUp();
    }

    /**
     * Lets the gateway read what was said last: closing a connection with unread calls on it would reset it, and the
     * gateway could lose frames that it has not read yet.
     */
    public function hangUp(): void
    {
        if ($this->isClosed) {
            return;
        }
        @\stream_socket_shutdown($this->socket, \STREAM_SHUT_WR);
        $until = \hrtime(true) + self::HANG_UP_NS;
        while (!$this->isClosed && ($left = $until - \hrtime(true)) > 0) {
            $read = [$this->socket];
            $write = $except = null;
            if (@\stream_select($read, $write, $except, 0, \intdiv($left, 1000)) === 1) {
                $bytes = @\stream_socket_recvfrom($this->socket, READ_BYTES);
                $this->isClosed = $bytes === '' || $bytes === false;
            }
        }
        $this->isClosed = true;
    }
}
