// Writes sample messages with Apache Kafka's own classes, for `cargo xtask interop vectors`.
//
//   java Vectors VERSION WANTED INTO
//
// VERSION is that of the jars. WANTED has a line for each message: the file it goes to, its name, `request`, `response` or
// `record`, the number of its API or -1, its first and its last version; tabs between them.

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.RequestHeader;

public final class Vectors {
    private static final int CORRELATION_ID = 0x01020304;
    private static final String CLIENT_ID = "a client";

    /** Where Kafka's classes for messages and records stand. */
    private static final List<String> PACKAGES = List.of(
            "org.apache.kafka.common.message.",
            "org.apache.kafka.common.metadata.",
            "org.apache.kafka.coordinator.group.generated.",
            "org.apache.kafka.raft.generated.",
            "org.apache.kafka.server.log.remote.metadata.storage.generated.");

    /** Where the definitions stand from which these classes were made. */
    private static final List<String> FOLDERS =
            List.of("common/message/", "common/metadata/", "message/");

    /** The one definition in a file of another name. */
    private static final Map<String, String> RENAMED =
            Map.of("ZkMigrationStateRecord", "ZkMigrationRecord");

    private static final ObjectMapper JSON =
            new ObjectMapper().configure(JsonParser.Feature.ALLOW_COMMENTS, true);

    private Vectors() {}

    public static void main(String[] arguments) throws Exception {
        Map<String, StringBuilder> files = new LinkedHashMap<>();
        Path wanted = Path.of(arguments[1]).toAbsolutePath();
        for (String line : Files.readAllLines(wanted)) {
            String[] words = line.split("\t");
            StringBuilder file = files.computeIfAbsent(words[0], name -> head(arguments[0]));
            short first = Short.parseShort(words[4]);
            short last = Short.parseShort(words[5]);
            for (short version = first; version <= last; version++) {
                if (!words[2].equals("record")) {
                    headers(file, words[1], words[2], Integer.parseInt(words[3]), version);
                }
                samples(file, words[1], version, words[2].equals("record") ? "" : "Data");
            }
        }
        StringBuilder fetch = files.get("fetch");
        FetchAnswers.write((kind, version, answer) ->
                line(fetch, "FetchResponse", version, kind, answer, version));
        Path scratch = Files.createTempDirectory(wanted.getParent(), "files");
        KafkaFiles.write(files.computeIfAbsent("files", name -> head(arguments[0])), scratch);
        Assignors.write(files.computeIfAbsent("assignors", name -> head(arguments[0])));
        for (Map.Entry<String, StringBuilder> file : files.entrySet()) {
            Files.writeString(Path.of(arguments[2], file.getKey() + ".txt"), file.getValue());
        }
    }

    private static StringBuilder head(String kafka) {
        return new StringBuilder("# Written by the classes of Apache Kafka ")
                .append(kafka)
                .append(" through cargo xtask interop vectors.\n");
    }

    private static void headers(
            StringBuilder file, String name, String direction, int key, short version) {
        ApiKeys api = ApiKeys.forId(key);
        if (direction.equals("request")) {
            for (String client : new String[] {CLIENT_ID, null}) {
                RequestHeader header = new RequestHeader(api, version, client, CORRELATION_ID);
                String kind = client == null ? "header-without-client" : "header";
                line(file, name, version, kind, header.data(), header.headerVersion());
            }
        } else {
            ResponseHeaderData header = new ResponseHeaderData().setCorrelationId(CORRELATION_ID);
            line(file, name, version, "header", header, api.responseHeaderVersion(version));
        }
    }

    private static void samples(StringBuilder file, String name, short version, String suffix)
            throws Exception {
        Class<?> type = find(name + suffix);
        Message defaults = (Message) type.getDeclaredConstructor().newInstance();
        line(file, name, version, "defaults", defaults, version);
        Method read = Class.forName(type.getName() + "JsonConverter")
                .getMethod("read", JsonNode.class, short.class);
        JsonNode definition = definition(name);
        for (Samples.Kind kind : Samples.Kind.values()) {
            JsonNode sample = new Samples(definition, kind, version).message();
            Message message = (Message) read.invoke(null, sample, version);
            line(file, name, version, kind.label, message, version);
        }
    }

    private static void line(
            StringBuilder file, String name, short version, String kind, Message message,
            short inVersion) {
        ByteBuffer written = MessageUtil.toByteBufferAccessor(message, inVersion).buffer();
        byte[] bytes = new byte[written.remaining()];
        written.get(bytes);
        file.append(name).append(' ').append(version).append(' ').append(kind).append(' ');
        file.append(bytes.length == 0 ? "-" : HexFormat.of().formatHex(bytes)).append('\n');
    }

    private static Class<?> find(String name) throws ClassNotFoundException {
        for (String place : PACKAGES) {
            try {
                return Class.forName(place + name);
            } catch (ClassNotFoundException elsewhere) {
                continue;
            }
        }
        throw new ClassNotFoundException(name);
    }

    private static JsonNode definition(String name) throws IOException {
        for (String folder : FOLDERS) {
            String file = folder + RENAMED.getOrDefault(name, name) + ".json";
            try (InputStream in = Vectors.class.getClassLoader().getResourceAsStream(file)) {
                if (in != null) {
                    return JSON.readTree(in);
                }
            }
        }
        throw new IOException("no definition of " + name);
    }
}
