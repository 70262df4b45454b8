// franz-go as a program that a benchmark measures; what it is told and prints: ../README.md.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	chunk    = 1000
	patience = time.Minute
)

var settings = map[string]string{}

func fail(what string, err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
	os.Exit(1)
}

func setting(name string) string {
	value, known := settings[name]
	if !known {
		fail(name, fmt.Errorf("not set"))
	}
	return value
}

func number(name string) float64 {
	value, err := strconv.ParseFloat(setting(name), 64)
	if err != nil {
		fail(name, err)
	}
	return value
}

func duration(name string) time.Duration {
	return time.Duration(number(name) * float64(time.Second))
}

// cpu is what the process has used, in seconds.
func cpu() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		fail("getrusage", err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}

func client(more ...kgo.Opt) *kgo.Client {
	options := []kgo.Opt{kgo.SeedBrokers(setting("address"))}
	for name, value := range settings {
		name, found := strings.CutPrefix(name, "option.")
		if found {
			options = append(options, option(name, value)...)
		}
	}
	made, err := kgo.NewClient(append(options, more...)...)
	if err != nil {
		fail("NewClient", err)
	}
	return made
}

func option(name, value string) []kgo.Opt {
	switch name + "=" + value {
	case "acks=all":
		return []kgo.Opt{kgo.RequiredAcks(kgo.AllISRAcks())}
	case "acks=1":
		return []kgo.Opt{kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()}
	case "compression=none":
		return []kgo.Opt{kgo.ProducerBatchCompression(kgo.NoCompression())}
	case "compression=lz4":
		return []kgo.Opt{kgo.ProducerBatchCompression(kgo.Lz4Compression())}
	}
	count, err := strconv.Atoi(value)
	if err != nil {
		fail(name, err)
	}
	switch name {
	case "linger.ms":
		return []kgo.Opt{kgo.ProducerLinger(time.Duration(count) * time.Millisecond)}
	case "max.buffered.records":
		return []kgo.Opt{kgo.MaxBufferedRecords(count)}
	case "batch.max.bytes":
		return []kgo.Opt{kgo.ProducerBatchMaxBytes(int32(count))}
	}
	fail(name, fmt.Errorf("no option known here"))
	return nil
}

type source struct {
	bytes, count int
	data         []byte
}

func values() source {
	data, err := os.ReadFile(setting("values"))
	if err != nil {
		fail("values", err)
	}
	size := int(number("bytes"))
	return source{size, len(data) / size, data}
}

func (s source) value(at int) []byte {
	from := at % s.count * s.bytes
	return s.data[from : from+s.bytes]
}

func producer() *kgo.Client {
	rule := kgo.ManualPartitioner()
	if setting("spread") == "own" {
		rule = kgo.StickyKeyPartitioner(nil)
	}
	return client(kgo.RecordPartitioner(rule), kgo.DefaultProduceTopic(setting("topic")))
}

func flush(made *kgo.Client) {
	limit, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := made.Flush(limit); err != nil {
		fail("Flush", err)
	}
}

func sendFor(made *kgo.Client, from source, span time.Duration, failed *atomic.Int64) int {
	partitions, at := int(number("partitions")), 0
	done := func(_ *kgo.Record, err error) {
		if err != nil {
			failed.Add(1)
		}
	}
	for end := time.Now().Add(span); time.Now().Before(end); {
		for range chunk {
			record := &kgo.Record{Value: from.value(at), Partition: int32(at % partitions)}
			made.Produce(context.Background(), record, done)
			at++
		}
	}
	flush(made)
	return at
}

func produce() {
	from, made := values(), producer()
	defer made.Close()
	var failed atomic.Int64
	warm := sendFor(made, from, duration("warm"), &failed)
	begin, used := time.Now(), cpu()
	sent := sendFor(made, from, duration("seconds"), &failed)
	took, used := time.Since(begin), cpu()-used
	if failed.Load() != 0 {
		fail("deliveries", fmt.Errorf("%d records failed", failed.Load()))
	}
	fmt.Printf("warm=%d records=%d seconds=%.4f cpu=%.4f\n", warm, sent, took.Seconds(), used)
}

var pass int

// readAll reads the whole topic once, in a new group, and sums the values' bytes.
func readAll(records int) int {
	pass++
	made := client(
		kgo.ConsumerGroup(fmt.Sprintf("bench-%d-%d-%d", os.Getpid(), pass, time.Now().UnixNano())),
		kgo.ConsumeTopics(setting("topic")),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	)
	defer made.Close()
	limit, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	read, bytes := 0, 0
	for read < records {
		fetches := made.PollFetches(limit)
		if errs := fetches.Errors(); len(errs) > 0 {
			fail("PollFetches", errs[0].Err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			read++
			bytes += len(record.Value)
		})
	}
	return bytes
}

func consume() {
	records, passes, bytes := int(number("records")), 0, 0
	for end := time.Now().Add(duration("warm")); time.Now().Before(end); {
		readAll(records)
	}
	begin, used := time.Now(), cpu()
	for time.Since(begin) < duration("seconds") {
		bytes += readAll(records)
		passes++
	}
	took, used := time.Since(begin), cpu()-used
	fmt.Printf("records=%d seconds=%.4f cpu=%.4f bytes=%d\n",
		passes*records, took.Seconds(), used, bytes)
}

// waitUntil sleeps until shortly before the time, and then looks at the clock.
func waitUntil(at time.Time) {
	time.Sleep(time.Until(at) - 200*time.Microsecond)
	for time.Now().Before(at) {
		continue
	}
}

// sendAtARate gives the microseconds from when each record was due to its answer.
func sendAtARate(made *kgo.Client, from source, count int, every time.Duration) []float64 {
	partitions, waited := int(number("partitions")), make([]float64, count)
	begin := time.Now()
	for i := range count {
		due := begin.Add(time.Duration(i) * every)
		waitUntil(due)
		record := &kgo.Record{Value: from.value(i), Partition: int32(i % partitions)}
		made.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
			if err != nil {
				fail("delivery", err)
			}
			waited[i] = float64(time.Since(due).Nanoseconds()) / 1000
		})
	}
	flush(made)
	return waited
}

func latency() {
	from, made := values(), producer()
	defer made.Close()
	rate := number("rate")
	every := time.Duration(float64(time.Second) / rate)
	warm, count := int(number("warm")*rate), int(number("seconds")*rate)
	sendAtARate(made, from, warm, every)
	begin, used := time.Now(), cpu()
	waited := sendAtARate(made, from, count, every)
	took, used := time.Since(begin), cpu()-used
	slices.Sort(waited)
	fmt.Printf("warm=%d records=%d seconds=%.4f cpu=%.4f p50=%.1f p99=%.1f max=%.1f\n",
		warm, count, took.Seconds(), used, waited[count/2], waited[count*99/100], waited[count-1])
}

func main() {
	modes := map[string]func(){"produce": produce, "consume": consume, "latency": latency}
	if len(os.Args) < 2 || modes[os.Args[1]] == nil {
		fail("usage", fmt.Errorf("produce|consume|latency NAME=VALUE ..."))
	}
	for _, word := range os.Args[2:] {
		name, value, _ := strings.Cut(word, "=")
		settings[name] = value
	}
	modes[os.Args[1]]()
}
