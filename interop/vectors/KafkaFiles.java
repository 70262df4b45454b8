// Files that Kafka keeps beside its logs, written by the classes that write them.

import java.io.File;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.raft.ElectionState;
import org.apache.kafka.raft.FileQuorumStateStore;
import org.apache.kafka.raft.ReplicaKey;
import org.apache.kafka.server.common.KRaftVersion;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;

final class KafkaFiles {
    private static final int NODE = 1;
    private static final int EPOCH = 2;
    private static final Set<Integer> VOTERS = Set.of(NODE);

    private KafkaFiles() {}

    static void write(StringBuilder out, Path scratch) throws Exception {
        ElectionState leader =
                ElectionState.withElectedLeader(EPOCH, NODE, Optional.empty(), VOTERS);
        ElectionState voted = ElectionState.withVotedCandidate(
                EPOCH, ReplicaKey.of(NODE, new Uuid(3, 4)), VOTERS);
        vote(out, scratch, "leader", leader, KRaftVersion.KRAFT_VERSION_0);
        vote(out, scratch, "leader", leader, KRaftVersion.KRAFT_VERSION_1);
        vote(out, scratch, "voted", voted, KRaftVersion.KRAFT_VERSION_1);
        snapshot(out, scratch);
    }

    private static void vote(
            StringBuilder out, Path scratch, String kind, ElectionState state, KRaftVersion version)
            throws Exception {
        File file = scratch.resolve("quorum-state").toFile();
        new FileQuorumStateStore(file).writeElectionState(state, version);
        line(out, "quorum-state", version.quorumStateVersion(), kind, file);
    }

    /** Two producers: one that has written and may be in a transaction, one of which no batch is left. */
    private static void snapshot(StringBuilder out, Path scratch) throws Exception {
        Map<Long, ProducerStateEntry> producers = new LinkedHashMap<>();
        ProducerStateEntry wrote =
                new ProducerStateEntry(1000, (short) 3, 7, 1_700_000_000_000L, OptionalLong.of(90));
        Method add = ProducerStateEntry.class.getDeclaredMethod(
                "addBatch", short.class, int.class, long.class, int.class, long.class);
        add.setAccessible(true);
        add.invoke(wrote, (short) 3, 41, 104L, 2, 1_700_000_000_001L);
        producers.put(1000L, wrote);
        producers.put(1001L, new ProducerStateEntry(
                1001, (short) 0, -1, 1_700_000_000_002L, OptionalLong.empty()));
        File file = scratch.resolve("00000000000000000105.snapshot").toFile();
        ProducerStateManager.writeSnapshot(file, producers, true);
        line(out, "producer-snapshot", 1, "two", file);
    }

    private static void line(StringBuilder out, String name, int version, String kind, File file)
            throws Exception {
        byte[] bytes = Files.readAllBytes(file.toPath());
        out.append(name).append(' ').append(version).append(' ').append(kind).append(' ');
        out.append(HexFormat.of().formatHex(bytes)).append('\n');
        Files.delete(file.toPath());
    }
}
