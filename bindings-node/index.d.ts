/// <reference lib="esnext.disposable" />
/// <reference types="node" />

import { EventEmitter } from 'node:events'
import type { CommonOptions, ConsumerOptions as ConsumerTable, ProducerOptions } from './lib/options'
import type { ErrorCode } from './lib/errors'

export type { CommonOptions, ErrorCode, ProducerOptions }
export type { ErrorClass } from './lib/errors'

/** What a key, a value or a header's value may be. Null is null, which is not empty. */
export type Bytes = string | Uint8Array | null | undefined
/** Headers by name, or as entries: those keep their order, and names may repeat. */
export type HeadersInput =
  | Readonly<Record<string, Bytes>>
  | Iterable<readonly [name: string, value: Bytes]>
/** Milliseconds since 1970, or a date. Without one, it is the time of the call. */
export type TimestampInput = number | bigint | Date | null | undefined
/** Options of a wait. */
export interface WaitOptions {
  /** Ends the wait, which then rejects with the signal's reason. */
  signal?: AbortSignal
}
/** Options of a wait with a limit. */
export interface TimeoutOptions extends WaitOptions {
  /** Milliseconds. */
  timeout?: number
}

/** A record's parts beside its topic and value. */
export interface RecordOptions {
  key?: Bytes
  headers?: HeadersInput | null
  /** Which partition; without one, the partitioner chooses. */
  partition?: number | null
  timestamp?: TimestampInput
}
/** A record of `sendMany`: with its parts named, as key and value, or its value alone. */
export type RecordInput =
  | Bytes
  | readonly [key: Bytes, value: Bytes]
  | (RecordOptions & { value?: Bytes })

/** Where a record has arrived. */
export class Delivery {
  private constructor()
  readonly topic: string
  readonly partition: number
  /** −1 if it is not known: with `acks: 0`, or if the broker had the record already. */
  readonly offset: bigint
  /** Milliseconds since 1970: the broker's time if the topic is set so, else the record's own. */
  readonly timestamp: number
  toJSON(): { topic: string; partition: number; offset: string; timestamp: number }
}

/** What became of each record of a `sendMany`. */
export class SendReport {
  private constructor()
  readonly topic: string
  readonly length: number
  /** Whether all are delivered. */
  readonly ok: boolean
  /** By row; −1 where there is an error. */
  readonly partitions: Int32Array
  readonly offsets: BigInt64Array
  readonly timestamps: BigInt64Array
  /** Why rows were not delivered: a TypeError if it was no record. */
  readonly errors: ReadonlyMap<number, OttlaError | TypeError>
  /** Where a record has arrived. Throws why it has not. */
  get(row: number): Delivery
  toJSON(): object
}

export interface ProducerEvents {
  /** Records that were pushed have failed. Without a listener, `flush` and `close` reject. */
  error: [error: OttlaError]
}

/** Sends records to topics. Made without touching the network: the first record connects. */
export class Producer extends EventEmitter<ProducerEvents> {
  constructor(options: ProducerOptions)
  /**
   * Sends a record; resolves when it is delivered. While there is no room for it, it waits in order
   * with others, for up to `maxBlock`; `BufferFull` at once if as many bytes wait as `bufferMemory`
   * is (16 MiB if that is more), each record with 1 KiB for itself.
   */
  send(topic: string, value: Bytes, options?: RecordOptions & WaitOptions): Promise<Delivery>
  /**
   * Sends a record without waiting for what becomes of it. False if there is no room: then nothing
   * was kept of it; wait for `drain`. Failures come as `error` events.
   */
  push(topic: string, value: Bytes, options?: RecordOptions): boolean
  /** Resolves when there is room again; rejects with `BufferFull` if there was none within `maxBlock`. */
  drain(options?: WaitOptions): Promise<void>
  /**
   * Sends many records at once; one that is refused does not keep the others back. For room it waits
   * `maxBlock` in all; what finds none then is reported as `BufferFull`.
   */
  sendMany(
    topic: string,
    records: Iterable<RecordInput>,
    options?: WaitOptions
  ): Promise<SendReport>
  /**
   * Sends all at once; resolves when each record is delivered or has failed. Waits for that without
   * a limit of its own.
   */
  flush(options?: TimeoutOptions): Promise<void>
  /**
   * Delivers what there is, within `timeout`, and ends. Without one it may take `deliveryTimeout` and
   * a second, by which each record is delivered or has failed. Rejects if records were lost that
   * nobody waited for. A second call gives the first one's outcome.
   */
  close(options?: { timeout?: number }): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

/** A partition of a topic. */
export interface TopicPartition {
  topic: string
  partition: number
}
/** A place in a partition. */
export interface TopicOffset extends TopicPartition {
  offset: bigint | number
}
/** An offset to commit, with what a group keeps beside it. */
export interface TopicOffsetAndMetadata extends TopicOffset {
  /**
   * A text of the program's own. Brokers take 4,096 bytes unless they are told otherwise
   * (`offset.metadata.max.bytes`), and no client can send more than 32,767.
   */
  metadata?: string | null
  /** The leader epoch of the record before it, if it is known. */
  leaderEpoch?: number | null
}
/** What a group has committed. */
export interface OffsetAndMetadata {
  offset: bigint
  /** Empty if none was given. */
  metadata: string
  leaderEpoch: number | null
}
/** A time to look for in a partition. */
export interface TopicTimestamp extends TopicPartition {
  timestamp: number | bigint | Date
}
/** A record's place and time. */
export interface OffsetAndTimestamp {
  offset: bigint
  /** Milliseconds since 1970. Above 2^53 it is rounded. */
  timestamp: number
  /** The epoch of the leader that took it; null if it is not known. */
  leaderEpoch: number | null
}

/** Headers of a record that was read, in order: a name may repeat, a value may be null. */
export class Headers implements Iterable<[name: string, value: Buffer | null]> {
  private constructor()
  [Symbol.iterator](): IterableIterator<[name: string, value: Buffer | null]>
  readonly size: number
  /** The value of the last header of that name. */
  get(name: string): Buffer | null | undefined
  /** The values of all headers of that name. */
  getAll(name: string): (Buffer | null)[]
  has(name: string): boolean
  entries(): [name: string, value: Buffer | null][]
  toJSON(): [name: string, value: Buffer | null][]
}

/**
 * A record that was read. Key and value are views on the memory of its batch, which a kept record
 * keeps alive: copy them with `Buffer.from` if few of many are kept.
 */
export class ConsumerRecord {
  private constructor()
  readonly topic: string
  readonly partition: number
  readonly offset: bigint
  /** Milliseconds since 1970. Above 2^53 it is rounded. */
  readonly timestamp: number
  /** The same, never rounded. */
  readonly exactTimestamp: bigint
  readonly key: Buffer | null
  readonly value: Buffer | null
  readonly headers: Headers
  /** Commits this record and all before it in its partition. */
  commit(options?: WaitOptions): Promise<void>
  toJSON(): object
}

/** Records of one partition, in the order of their offsets. */
export class Batch implements Iterable<ConsumerRecord> {
  private constructor()
  [Symbol.iterator](): IterableIterator<ConsumerRecord>
  readonly topic: string
  readonly partition: number
  readonly length: number
  readonly baseOffset: bigint
  readonly lastOffset: bigint
  /** The end of what could be read of the partition when this was fetched. */
  readonly highWatermark: bigint
  readonly offsets: BigInt64Array
  readonly timestamps: BigInt64Array
  get(index: number): ConsumerRecord | undefined
  keys(): (Buffer | null)[]
  values(): (Buffer | null)[]
  toColumns(): {
    offsets: BigInt64Array
    timestamps: BigInt64Array
    keys: (Buffer | null)[]
    values: (Buffer | null)[]
  }
  /** Commits this batch and all before it in its partition. */
  commit(options?: WaitOptions): Promise<void>
  toJSON(): object
}

/** Options of consumers. */
export interface ConsumerOptions extends ConsumerTable {
  /** The topics to read; more can be said with `subscribe`. */
  topics?: string | readonly string[]
}

/** What to commit. A list is one of offsets to read on from: a record in it is refused. */
export type Committable =
  | ConsumerRecord
  | Batch
  | TopicOffsetAndMetadata
  | readonly TopicOffsetAndMetadata[]

/**
 * Reads topics, sharing their partitions with the other members of its group, or the partitions that
 * it is told to (`assign`). What was given counts as finished when the next is asked for; that is
 * what automatic commits go by.
 */
export class Consumer implements AsyncIterable<ConsumerRecord> {
  constructor(options: ConsumerOptions)
  /** Reads these topics, and no others from now on. */
  subscribe(topics: string | readonly string[]): void
  /**
   * Reads the topics whose whole names match a regular expression, and no others from now on; also
   * those that come later, from their beginning, as soon as the metadata tell of them (the option
   * `metadataMaxAge`). Kafka's internal topics only with `excludeInternalTopics: false`. The syntax is
   * that of Rust's crate regex, which is RE2's but for little, not JavaScript's. `InvalidGroup`
   * without the option `group`; `InvalidArgument` for what cannot be read, or grows beyond 1 MiB.
   */
  subscribePattern(pattern: string): void
  /**
   * Reads these partitions, and no others from now on, without a group that shares them out; none at
   * all is `unsubscribe`. What was read before and is among them is read on from where it stands. With
   * the option `group` reading begins at what the group has committed, and commits go there; the group
   * should have no members, or it refuses them with `CommitFenced`. Without it reading begins by the
   * option `start`, and commits are refused. No time between polls is too long. A partition that does
   * not exist yet is waited for, then read from its beginning; a poll whose time is over meanwhile
   * rejects with `UnknownTopic`. `InvalidState` while topics are subscribed to.
   */
  assign(partitions: readonly TopicPartition[]): void
  /** Leaves the group, after what is finished was committed, and reads nothing. */
  unsubscribe(): void
  /**
   * The next record; null if the time is over before one comes. Waits as long as it takes. Polls that
   * wait are served in their order; `InvalidState` if 1,024 wait already, polls and iterations.
   */
  poll(options?: TimeoutOptions): Promise<ConsumerRecord | null>
  /** All records from here on. Ends when the consumer is closed. */
  [Symbol.asyncIterator](): AsyncIterableIterator<ConsumerRecord>
  /** The same in batches of one partition, of so many records at most. */
  batches(options?: WaitOptions & { maxRecords?: number }): AsyncIterableIterator<Batch>
  /**
   * Commits a record or a batch and all before it in its partition, or offsets to read on from;
   * without any, all that was given so far. Resolves when the group's coordinator has it.
   */
  commit(what?: Committable | null, options?: WaitOptions): Promise<void>
  /** The same without waiting: newer commits take the place of older ones that wait. */
  commitSoon(what?: Committable | null): void
  /**
   * The program has finished its work on a record or a batch; with `acknowledgement: 'explicit'`,
   * where nothing else finishes it, in any order. The first unfinished record is committed, and what
   * is finished behind it beside that: a consumer that reads on from there is given only the rest.
   */
  acknowledge(what: ConsumerRecord | Batch): void
  /** What the group has committed for these partitions; null for none. */
  committed(
    partitions: readonly TopicPartition[],
    options?: WaitOptions
  ): Promise<(bigint | null)[]>
  /** The same with what stands beside each offset; `timeout` as in `beginningOffsets`. */
  committedWithMetadata(
    partitions: readonly TopicPartition[],
    options?: TimeoutOptions
  ): Promise<(OffsetAndMetadata | null)[]>
  /**
   * The offset of the first record of each of these partitions, in their order; that of the next one
   * where there is none. They need not be assigned. Faults that may pass, such as a topic that does
   * not exist, are tried again for `timeout`, which without a value is the option `apiTimeout`;
   * `Timeout` then names the last. `InvalidTopic` for a name that cannot be.
   */
  beginningOffsets(
    partitions: readonly TopicPartition[],
    options?: TimeoutOptions
  ): Promise<bigint[]>
  /** The offset behind the last record of each: that of the next one to be written. Else the same. */
  endOffsets(partitions: readonly TopicPartition[], options?: TimeoutOptions): Promise<bigint[]>
  /**
   * The first record of each of these partitions whose time is the one given or later, in their order;
   * null where there is none. `InvalidArgument` for two times of one partition. Else the same.
   */
  offsetsForTimes(
    times: readonly TopicTimestamp[],
    options?: TimeoutOptions
  ): Promise<(OffsetAndTimestamp | null)[]>
  /**
   * Goes on with a partition so many records before its end, or at its beginning if it has fewer; the
   * offset at which that is. Compaction and transactions leave gaps: then so many offsets.
   * `NotAssigned` if it is not this consumer's; `timeout` as in `beginningOffsets`.
   */
  seekBeforeEnd(
    partition: TopicPartition,
    records: bigint | number,
    options?: TimeoutOptions
  ): Promise<bigint>
  /**
   * How many offsets lie between the next record to be given of a partition and its end, as the last
   * answers told; null while that is not known, or the partition is not assigned.
   */
  currentLag(partition: TopicPartition): bigint | null
  /**
   * Tells that the program lives while it works longer on what it was given than the option
   * `maxPollInterval`, which counts anew from here. Unlike a poll it finishes nothing.
   */
  keepAlive(): void
  /** The offset of the next record to be given; null while it is not known. */
  position(partition: TopicPartition): bigint | null
  /** Goes on with a partition from an offset: it is that of the next record given. */
  seek(partition: TopicPartition, offset: bigint | number): void
  seek(place: TopicOffset): void
  /** Gives no records of these partitions until they are resumed; what was fetched is kept. */
  pause(partitions: readonly TopicPartition[]): void
  resume(partitions: readonly TopicPartition[]): void
  /** The partitions that are this consumer's now. */
  assignment(): TopicPartition[]
  /**
   * Commits what is finished, leaves the group, and ends, within `timeout`; without one within the
   * option `apiTimeout`. A second call gives the first one's outcome.
   */
  close(options?: { timeout?: number }): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

/** Options of the embedded broker; others are Kafka's, dotted or in camel case. */
export interface BrokerOptions {
  /** HOST:PORT; port 0 takes a free one. Default 127.0.0.1:0. */
  listen?: string | undefined
  /** Where its data is kept; without one, in memory. */
  dataDir?: string | URL | undefined
  [option: string]: unknown
}

/** A broker in this process. It keeps no process alive; one that ends without `stop` takes it down. */
export class Broker {
  protected constructor(options?: BrokerOptions)
  /** Starts one; it serves when this resolves. */
  static start(options?: BrokerOptions): Promise<Broker>
  /** HOST:PORT for clients on this machine: the value for `bootstrapServers`. */
  readonly address: string
  readonly clusterId: string
  /** Creates a topic; it can be produced to when this resolves. */
  createTopic(name: string, options?: { partitions?: number }): Promise<void>
  /** Stops it, within 5 s unless told otherwise. A second call does nothing. */
  stop(options?: { timeout?: number }): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

/** What every error of this package is. */
export class OttlaError extends Error {
  protected constructor()
  /** The error's kind. */
  readonly code: ErrorCode
  /** Whether trying again may help. */
  readonly retriable: boolean
  /** Whether the record may be stored all the same. */
  readonly maybeStored: boolean
  /** What may have become of the record, if it is about one. */
  readonly outcome?: 'NotSent' | 'PossiblyPersisted' | 'Rejected'
  /** The error code in the broker's answer. */
  readonly kafkaCode?: number
  readonly topic?: string
  readonly partition?: number
  readonly broker?: string
  readonly api?: string
  readonly attempt?: number
  /** What a person can do about it. */
  readonly hint?: string
}
/** Try again: the cause may pass. */
export class RetriableError extends OttlaError {}
/** Give up what was begun, then go on with the client. */
export class AbortableError extends OttlaError {}
/** The client is of no more use, or the cluster will not take it as it is. */
export class FatalError extends OttlaError {}
/** The call was wrong, and will be wrong again. */
export class UsageError extends OttlaError {}
