// Says where Apache Kafka's own client puts keys, for `cargo xtask interop partitioners`.
//
//   java Partitioners KEYS COUNTS
//
// KEYS has a key in hexadecimal on each line, `-` for the empty one; COUNTS are numbers of partitions, with commas between.

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.stream.Collectors;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

public final class Partitioners {
    private Partitioners() {}

    public static void main(String[] arguments) throws Exception {
        int[] counts = Arrays.stream(arguments[1].split(",")).mapToInt(Integer::parseInt).toArray();
        StringBuilder rows = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            byte[] key = line.equals("-") ? new byte[0] : HexFormat.of().parseHex(line);
            String partitions = Arrays.stream(counts)
                    .mapToObj(count -> Integer.toString(BuiltInPartitioner.partitionForKey(key, count)))
                    .collect(Collectors.joining(","));
            rows.append("murmur2 %s %08x %s\n".formatted(line, Utils.murmur2(key), partitions));
        }
        System.out.print(rows);
    }
}
