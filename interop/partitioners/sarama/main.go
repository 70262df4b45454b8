// Says where Sarama puts keys, for `cargo xtask interop partitioners`.
//
//	go run . KEYS COUNTS
//
// Of KEYS and COUNTS Partitioners.java tells.
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"log"
	"os"
	"strconv"
	"strings"

	"github.com/IBM/sarama"
)

func main() {
	keys, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	var counts []int32
	for _, word := range strings.Split(os.Args[2], ",") {
		count, err := strconv.ParseInt(word, 10, 32)
		if err != nil {
			log.Fatal(err)
		}
		counts = append(counts, int32(count))
	}
	rules := []struct {
		name string
		rule sarama.Partitioner
	}{
		{"hash", sarama.NewHashPartitioner("t")},
		{"reference", sarama.NewReferenceHashPartitioner("t")},
	}
	out := bufio.NewWriter(os.Stdout)
	for _, line := range strings.Fields(string(keys)) {
		key, err := hex.DecodeString(strings.TrimPrefix(line, "-"))
		if err != nil {
			log.Fatal(err)
		}
		hasher := fnv.New32a()
		hasher.Write(key)
		for _, each := range rules {
			var partitions []string
			for _, count := range counts {
				record := &sarama.ProducerMessage{Key: sarama.ByteEncoder(key)}
				partition, err := each.rule.Partition(record, count)
				if err != nil {
					log.Fatal(err)
				}
				partitions = append(partitions, strconv.Itoa(int(partition)))
			}
			where := strings.Join(partitions, ",")
			fmt.Fprintf(out, "%s %s %08x %s\n", each.name, line, hasher.Sum32(), where)
		}
	}
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}
