<?php
/**
 * Frames of the wire protocol, for the PHP daemon and its workers. Page: runtime/wire-protocol.
 *
 *   u32 length | u8 kind | u32 id | u32 header length | header: JSON text | body: raw bytes
 */

declare(strict_types=1);

namespace Fngw;

const PROTOCOL_VERSION = 1;

final class Kind
{
    public const HELLO = 1;
    public const READY = 2;
    public const START = 3;
    public const STARTED = 4;
    public const STOP = 5;
    public const EXITED = 6;
    public const LOG = 7;
    public const CALL = 16;
    public const REPLY = 17;
    public const CHUNK = 18;
    public const END = 19;
    public const CANCEL = 20;
    public const ERROR = 21;
    public const MORE = 22;
    public const PING = 32;
    public const PONG = 33;

    /** Bit n is set when kind n exists. */
    public const ALL = 0b11_0000_0000_0111_1111_0000_0000_1111_1110;
}

/** Largest frame before a function's `max_body_bytes` is added, bytes. */
const MAX_FRAME_BYTES = 16 * 1024 * 1024;
/** Largest body of one `reply`, bytes; a larger one goes out as chunks. */
const MAX_REPLY_BODY_BYTES = 1024 * 1024;
/** Bytes of a stream that may be under way. */
const STREAM_WINDOW_BYTES = 256 * 1024;
/** Bytes of one chunk: several fit the window, so that the next one is made while the last one is taken. */
const CHUNK_BYTES = 64 * 1024;
/** Bytes asked of a socket or pipe at once. */
const READ_BYTES = 64 * 1024;

const PREFIX_BYTES = 13;
const FIXED_BYTES = 9;
const JSON_FLAGS = \JSON_UNESCAPED_SLASHES | \JSON_UNESCAPED_UNICODE | \JSON_PRESERVE_ZERO_FRACTION;

/** The connection is to be closed. */
final class ProtocolError extends \RuntimeException
{
}

/** @param string $header JSON text, '' for no fields */
function encodeFrame(int $kind, int $id, string $header = '', string $body = ''): string
{
    $headerBytes = \strlen($header);
    return \pack('NCNN', FIXED_BYTES + $headerBytes + \strlen($body), $kind, $id, $headerBytes) . $header . $body;
}

/**
 * A frame whose header holds text of any origin: bytes that are no UTF-8 are replaced.
 *
 * @param array<string, mixed> $fields
 */
function encodeFields(int $kind, int $id, array $fields, string $body = ''): string
{
    return encodeFrame($kind, $id, (string) \json_encode($fields, JSON_FLAGS | \JSON_INVALID_UTF8_SUBSTITUTE), $body);
}

/**
 * @param string $text header of a frame
 * @return array<string, mixed>
 * @throws ProtocolError
 */
function parseHeader(string $text): array
{
    if ($text === '') {
        return [];
    }
    $value = \json_decode($text, true);
    // A list and an object are both arrays here; only the text tells them apart.
    if (!\is_array($value) || $text[\strspn($text, " \t\r\n")] !== '{') {
        throw new ProtocolError(
            $value === null ? 'frame header is not JSON' : 'frame header is not a JSON object',
        );
    }
    return $value;
}

/** Text of any origin as UTF-8, which the body of a `log` must be. */
function toUtf8(string $text): string
{
    if (\preg_match('//u', $text) === 1) {
        return $text;
    }
    return (string) \json_decode((string) \json_encode($text, \JSON_INVALID_UTF8_SUBSTITUTE));
}

/** Cuts a byte stream into frames, whatever way the transport splits it. Holds at most one unfinished frame. */
final class FrameReader
{
    /** Largest `length`; the owner raises it when it learns the function's `max_body_bytes`. */
    public int $maxFrameBytes = MAX_FRAME_BYTES;
    private string $bytes = '';
    private int $at = 0;

    public function push(string $chunk): void
    {
        if ($this->at === 0) {
            // Appended in place: a large frame that comes in many pieces is not copied for each of them.
            $this->bytes .= $chunk;
            return;
        }
        $this->bytes = \substr($this->bytes, $this->at) . $chunk;
        $this->at = 0;
    }

    /**
     * @return array{0: int, 1: int, 2: string, 3: string}|null kind, id, header text, body of the next whole frame
     * @throws ProtocolError
     */
    public function next(): ?array
    {
        $held = \strlen($this->bytes) - $this->at;
        if ($held < PREFIX_BYTES) {
            if ($held === 0) {
                $this->bytes = '';
                $this->at = 0;
            } elseif ($held >= 4) {
                $this->checkLength(\unpack('N', $this->bytes, $this->at)[1]);
            }
            return null;
        }
        ['l' => $length, 'k' => $kind, 'i' => $id, 'h' => $headerBytes] =
            \unpack('Nl/Ck/Ni/Nh', $this->bytes, $this->at);
        if ($length < FIXED_BYTES || $length > $this->maxFrameBytes) {
            $this->checkLength($length);
        }
        if ($kind > 33 || (Kind::ALL >> $kind & 1) === 0) {
            throw new ProtocolError("unknown frame kind $kind");
        }
        if ($headerBytes > $length - FIXED_BYTES) {
            throw new ProtocolError('frame header is longer than its frame');
        }
        if ($held < $length + 4) {
            return null;
        }
        $headerAt = $this->at + PREFIX_BYTES;
        $this->at += $length + 4;
        $bodyAt = $headerAt + $headerBytes;
        return [
            $kind,
            $id,
            \substr($this->bytes, $headerAt, $headerBytes),
            $bodyAt === $this->at ? '' : \substr($this->bytes, $bodyAt, $this->at - $bodyAt),
        ];
    }

    private function checkLength(int $length): void
    {
        if ($length < FIXED_BYTES) {
            throw new ProtocolError("frame length $length is below " . FIXED_BYTES);
        }
        if ($length > $this->maxFrameBytes) {
            throw new ProtocolError("frame length $length is above {$this->maxFrameBytes}");
        }
    }
}
